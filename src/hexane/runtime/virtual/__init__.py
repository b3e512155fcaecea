"""Virtual engines at the driver's border: the kernel's checks in its order, and the emulator behind them.

They know what a kernel knows and nothing else: handles, sizes and bytes. What a real engine would hang on ends in
ETIMEDOUT; ``problems`` keeps the emulator's reason, which no real driver gives (docs/devices.md).
"""
