"""Whether kernels can be compiled here."""

import pytest

from cuzk_engine.devices.cuda import nvrtc


def _has_nvrtc() -> bool:
    try:
        nvrtc.version()
    except nvrtc.NvrtcError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
