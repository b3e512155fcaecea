"""The demonstration: real networks on a picture and a melody that it makes itself."""

from hexane.demo.show import Shown, demonstrate

__all__ = ["Shown", "demonstrate"]
