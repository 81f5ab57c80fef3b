"""A session that holds nothing but what was around one incident, so that the usual charts can show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cuzk_gui.models import incidents
from cuzk_gui.models.incidents import Record
from cuzk_gui.models.session import Session, Sizes

_SMALL: Final = Sizes(busy_lane=16, lane=16, gaps=16, memory=8192, samples=1024, buckets=16)


def frozen_session(session: Session, record: Record) -> Session | None:
    """None where nothing of that time is left."""
    incident = record.incident
    timeline = session.devices.get(incident.device)
    kept = record.frozen or (incidents.frozen(timeline, incident) if timeline else None)
    if kept is None or not kept.known.any():
        return None
    made = Session(_SMALL)
    made.recorded = True
    made.origin_ns = incidents.begin_ns(incident)
    made.latest_ns = min(incident.time_ns + incidents.AFTER_NS, max(session.latest_ns, incident.time_ns))
    made.wall_offset_ns = session.wall_offset_ns
    described = session.described.get(incident.device)
    if described is not None:
        capacity = incident.picture.capacity if incident.picture else described.capacity  # it may have changed since
        made.described = {incident.device: replace(described, capacity=capacity)}
    device = made.timeline(incident.device)
    assert device is not None
    device.memory.restore(kept.times, kept.values, kept.known)
    if len(kept.samples["time"]):
        device.samples.append(kept.samples)
    made.incidents.extend([incident])
    made.marks.extend(m for m in session.marks if made.origin_ns <= m.time_ns <= made.latest_ns)
    made.version += 1
    return made
