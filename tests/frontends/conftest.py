"""Packages that coremltools leaves in the temporary folder go into the test's own."""

from integrations.conftest import own_temporary_folder as own_temporary_folder
