"""Memory plans as the engine makes them."""

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice

GIB = 2**30

PLAN_PURPOSES = {"matrices": 0.05, "witness": 0.15, "abc": 0.3, "ntt": 0.15, "msm": 0.35}


def memory_plan(
    device_id: str = "cpu",
    *,
    capacity: int = 8 * GIB,
    peak: int = 2 * GIB,
    workers: int = 2,
    prestage: str = "ahead",
    free: int = 6 * GIB,
    others: int | None = None,
) -> MemoryPlanInfo:
    """A plan as the engine makes it: pre-staging ahead needs every worker's whole peak, the others only half."""
    ways = ["ahead", "locked", "off"][["ahead", "locked", "off"].index(prestage) :]
    choices = []
    for way in ways:
        total = workers * peak if way == "ahead" else peak + (workers - 1) * peak // 2
        text = "" if way == prestage else f"pre-staging falls back to {way}"
        choices.append(PlanChoice({"pipeline.prestage": way}, text, peak, total, peak <= free, total <= free))
    chosen = next((i for i, c in enumerate(choices) if c.all_fit), -1)
    if chosen < 0:
        chosen = next((i for i, c in enumerate(choices) if c.fits), -1)
    way = choices[max(chosen, 0)]
    return MemoryPlanInfo(
        device_id,
        capacity,
        way.peak,
        way.fits,
        {name: round(share * way.peak) for name, share in PLAN_PURPOSES.items()},
        way.total,
        free,
        others,
        workers,
        choices=tuple(choices),
        chosen=chosen,
    )
