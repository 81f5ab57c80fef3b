"""NVML on a real card: found by CUDA's names, with counters that agree with what was copied."""

from __future__ import annotations

import os
import statistics
import threading
import time

import cupy
import numpy as np
import pytest

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

from cuzk_engine import nvml
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.module import architecture
from cuzk_engine.events import EventBatch, Sample
from cuzk_engine.nvml import CardView, Nvml
from cuzk_engine.telemetry.gpu_sampler import GpuSampler, Target

GIB = 1 << 30


def first_card() -> probe.Card:
    driver = probe.read_driver()
    assert driver is not None
    return driver.cards[0]


def test_the_driver_and_nvml_mean_the_same_card() -> None:
    card = first_card()
    opened = Nvml.open()
    (twin,) = (other for other in opened.cards() if other.bus_id == nvml.normal_bus_id(card.bus_id))
    assert card.name == twin.name
    assert twin.mig or card.uuid == twin.uuid
    assert nvml.normal_bus_id(cupy.cuda.Device(0).pci_bus_id) == twin.bus_id
    assert card.architecture == architecture()
    for names in ((card.uuid, ""), ("", card.bus_id)):
        handle = opened.find(*names)
        memory = opened.memory(handle)
        assert memory is not None
        assert abs(memory.total - card.memory) < GIB
        assert memory.used + memory.free + (memory.reserved or 0) == memory.total
    opened.close()


def test_memory_of_this_process_and_of_others() -> None:
    card = first_card()
    view = CardView(card.uuid, card.bus_id)
    cupy.get_default_memory_pool().free_all_blocks()  # what other tests left would be handed out again
    before = view.memory()
    block = cupy.zeros(GIB // 8, dtype=np.uint64)
    cupy.cuda.get_current_stream().synchronize()
    after = view.memory()
    assert before is not None
    assert after is not None
    assert after.free <= before.free - GIB // 2
    others = view.others([os.getpid()])
    assert others is None or all(process.pid != os.getpid() for process in others)
    view.close()
    del block
    cupy.get_default_memory_pool().free_all_blocks()


def test_samples_while_copying() -> None:
    """The counters read a few per cent above the payload, which headers are added to."""
    card = first_card()
    sampler = GpuSampler(sample_seconds=0.1)
    sampler.watch({"cuda:0": Target(card.uuid, card.bus_id, (os.getpid(),))})
    pinned = cupy.cuda.alloc_pinned_memory(GIB)
    target = cupy.zeros(GIB // 8, dtype=np.uint64)
    stream = cupy.cuda.Stream(non_blocking=True)
    source = np.frombuffer(pinned, dtype=np.uint64, count=GIB // 8)
    rates: list[float] = []
    stop = threading.Event()

    def copy() -> None:
        with cupy.cuda.Device(0):
            while not stop.is_set():
                start = time.monotonic()
                target.set(source, stream=stream)
                stream.synchronize()
                rates.append(GIB / (time.monotonic() - start))

    copier = threading.Thread(target=copy)
    copier.start()
    time.sleep(3.0)
    stop.set()
    copier.join()
    batch = EventBatch.empty()
    sampler.collect(batch, lambda _: 0)
    condition = sampler.condition("cuda:0")
    sampler.stop()
    assert condition is None
    busy: list[Sample] = batch.samples[5:-2]
    print(f"{len(batch.samples)} samples; the last: {batch.samples[-1]}")
    assert len(busy) > 10
    for sample in busy:
        assert None not in (sample.memory_capacity, sample.utilisation, sample.power, sample.clock, sample.temperature)
        assert sample.throttle is not None
    received = [sample.pcie_rx for sample in busy if sample.pcie_rx is not None]
    if not received:
        pytest.skip("this driver has no PCIe counters")
    print(f"copied {statistics.median(rates) / 1e9:.1f} GB/s, counted {statistics.median(received) / 1e9:.1f} GB/s")
    assert 0.8 < statistics.median(received) / statistics.median(rates) < 1.4
    assert len(received) > len(busy) / 2
