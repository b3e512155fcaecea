"""An engine program: sections, surfaces, symbols, tasks; built, linked and edited from parts."""
