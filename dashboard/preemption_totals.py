"""What preemptions cost altogether, and by request: who lost, and who was given the room."""

from dataclasses import dataclass

from dashboard.preemption_log import Preemption


@dataclass(frozen=True)
class Cost:
    """Sums over some preemptions. `found` tokens were still cached, `recomputed` computed again.

    `delay_seconds` sums those that are over; `open` counts those that are not.
    """

    count: int = 0
    blocks: int = 0
    lost: int = 0
    found: int = 0
    recomputed: int = 0
    work_seconds: float = 0.0
    delay_seconds: float = 0.0
    open: int = 0

    def plus(self, story: Preemption) -> "Cost":
        delay = story.delay_seconds
        return Cost(
            self.count + 1,
            self.blocks + story.blocks_released,
            self.lost + story.tokens_lost,
            self.found + (story.found or 0),
            self.recomputed + story.recomputed,
            self.work_seconds + story.work_seconds,
            self.delay_seconds + (delay or 0.0),
            self.open + (delay is None),
        )


def total(stories: list[Preemption]) -> Cost:
    """All of them."""
    cost = Cost()
    for story in stories:
        cost = cost.plus(story)
    return cost


def by_request(stories: list[Preemption], needy: bool) -> list[tuple[str, Cost]]:
    """By victim, or by who needed the blocks (`needy`); most tokens lost first."""
    costs: dict[str, Cost] = {}
    for story in stories:
        name = story.needy if needy else story.request
        costs[name] = costs.get(name, Cost()).plus(story)
    return sorted(costs.items(), key=lambda item: (-item[1].lost, item[0]))
