"""Whether what clients saw of one key can have happened one after the other.

An operation took effect at some moment between its call and its answer; one whose answer never came,
at some moment after its call, or never. A history is linearizable if there is an order of these
moments in which every answer is right. Keys do not know of each other, so each has a history
of its own (which is what makes this quick).

The state of a key is its number and CAS, or None. The CAS is None where a write took effect whose
answer, and with it the CAS, nobody saw.
"""

from dataclasses import dataclass

FOREVER = float("inf")


@dataclass(frozen=True)
class Op:
    """One operation: what was asked, when, and what was answered."""

    kind: str  # get, set, replace (if the CAS is `expected`), add_one, delete
    called: float
    answered: float = FOREVER
    # What was written, or read.
    number: int | None = None
    # done, missing, exists; unknown if the answer never came.
    answer: str = "unknown"
    # The CAS that was answered, and the one that was asked for.
    cas: int | None = None
    expected: int | None = None


def _same(cas, seen):
    return cas is None or seen is None or cas == seen


def _after(state, op):
    """The states that `op` may leave, given its answer; none if it cannot have been answered so."""
    unknown, missing = op.answer == "unknown", op.answer == "missing"
    if op.kind == "get":
        if unknown:
            return [state]
        if state is None or missing:
            return [state] if state is None and missing else []
        number, cas = state
        return [(number, op.cas)] if number == op.number and _same(cas, op.cas) else []
    if op.kind == "set":
        return [(op.number, op.cas)]
    if op.kind == "delete":
        if unknown:
            return [None]
        return [None] if missing == (state is None) else []
    if op.kind == "add_one":
        number = 0 if state is None else state[0] + 1
        return [(number, op.cas)] if unknown or number == op.number else []
    if state is None:
        return [None] if unknown or missing else []
    matches = _same(state[1], op.expected)
    differs = state[1] != op.expected
    after = []
    if matches and op.answer in ("unknown", "done"):
        after.append((op.number, op.cas))
    if differs and op.answer in ("unknown", "exists"):
        after.append(state)
    return after


def linearizable(history):
    """Whether there is such an order.

    Cost: the orders of what ran side by side, each set of operations and state looked at once.
    """
    ops = sorted(history, key=lambda op: op.called)
    everything = (1 << len(ops)) - 1
    needed = sum(1 << index for index, op in enumerate(ops) if op.answer != "unknown")
    seen = set()
    todo = [(0, None)]
    while todo:
        done, state = todo.pop()
        if done & needed == needed:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        left = [index for index in range(len(ops)) if (everything & ~done) >> index & 1]
        # Nothing may come before what had been answered when it was called.
        until = min(ops[index].answered for index in left)
        for index in left:
            if ops[index].called > until:
                break
            todo.extend((done | 1 << index, after) for after in _after(state, ops[index]))
    return False


def must_be_linearizable(histories):
    """Fails unless all that clients saw of each key has an order."""
    wrong = [key for key, history in histories.items() if not linearizable(history)]
    if wrong:
        history = sorted(histories[wrong[0]], key=lambda op: op.called)
        raise AssertionError(f"{len(wrong)} of {len(histories)}; {wrong[0]}: " + "\n".join(map(str, history)))
