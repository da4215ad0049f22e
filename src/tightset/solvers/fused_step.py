"""One step of L-BFGS as one kernel for CUDA devices: a program for each candidate, which waits for no other."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["step_kernel"]


@cache
def step_kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def advance(
        theta, anchor, hold, scale, x, g, d, g_trial, S, Y, rho, alpha, loss_trial, loss, length, slope, pairs, stalls,
        status, n_iter, P, width, tol, sufficient, STALLS: tl.constexpr, MEMORY: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Take the trial point and turn, or stay and shorten the step; ``theta`` is the next trial point."""
        b = tl.program_id(0).to(tl.int64)
        if tl.load(status + b) == 0:
            off = tl.arange(0, BLOCK)
            base = b * P
            memory = b * MEMORY * P
            old = tl.load(loss + b)
            far = tl.load(length + b)
            down = tl.load(slope + b)
            n = tl.load(pairs + b)
            stalled = tl.load(stalls + b)
            # the whole loss at the trial point, and its gradient by x = theta / scale
            held = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, P, BLOCK):
                at = start + off
                there = at < P
                pull = tl.load(hold + b * width + at % width, mask=there, other=0.0)
                unit = tl.load(scale + b * width + at % width, mask=there, other=0.0)
                away = tl.load(theta + base + at, mask=there, other=0.0) - tl.load(
                    anchor + base + at, mask=there, other=0.0
                )
                held += pull * away * away
                slopes = tl.load(g_trial + base + at, mask=there, other=0.0) + pull * away
                tl.store(g_trial + base + at, slopes * unit, mask=there)
            new = tl.load(loss_trial + b) + tl.sum(held, axis=0) / 2
            tl.debug_barrier()
            good = new <= old + sufficient * far * down + 4 * 1.1920929e-7 * tl.abs(old)
            little = tol * tl.abs(old)
            if good:
                stalled = tl.where(old - new <= little, stalled + 1, 0)
                sy = tl.zeros((BLOCK,), tl.float32)
                ss = tl.zeros((BLOCK,), tl.float32)
                yy = tl.zeros((BLOCK,), tl.float32)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    here = tl.load(x + base + at, mask=there, other=0.0)
                    s = here + far * tl.load(d + base + at, mask=there, other=0.0) - here
                    y = tl.load(g_trial + base + at, mask=there, other=0.0) - tl.load(
                        g + base + at, mask=there, other=0.0
                    )
                    sy += s * y
                    ss += s * s
                    yy += y * y
                s_y = tl.sum(sy, axis=0)
                y_y = tl.sum(yy, axis=0)
                # A pair without curvature would make the direction go uphill.
                curved = s_y > 1e-8 * tl.sqrt(tl.sum(ss, axis=0)) * tl.sqrt(y_y)
                kept = tl.where(curved, P, 0)
                slot = n % MEMORY
                last = (n + MEMORY - 1) % MEMORY  # the newest pair, once this one is in
                if curved:
                    last = slot
                    n += 1
                    tl.store(rho + b * MEMORY + slot, 1 / s_y)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    here = tl.load(x + base + at, mask=there, other=0.0)
                    taken = here + far * tl.load(d + base + at, mask=there, other=0.0)
                    slopes = tl.load(g_trial + base + at, mask=there, other=0.0)
                    s = taken - here
                    y = slopes - tl.load(g + base + at, mask=there, other=0.0)
                    tl.debug_barrier()  # what is read is overwritten
                    tl.store(S + memory + slot * P + at, s, mask=at < kept)
                    tl.store(Y + memory + slot * P + at, y, mask=at < kept)
                    tl.store(x + base + at, taken, mask=there)
                    tl.store(g + base + at, slopes, mask=there)
                    tl.store(d + base + at, slopes, mask=there)
                tl.debug_barrier()
                count = tl.minimum(n, MEMORY)
                if count > 0:
                    first_dot = tl.zeros((BLOCK,), tl.float32)
                    latest = tl.zeros((BLOCK,), tl.float32)
                    # the two-loop recursion; each pass takes one pair off and multiplies with the next
                    for start in range(0, P, BLOCK):
                        at = start + off
                        there = at < P
                        first_dot += tl.load(S + memory + last * P + at, mask=there, other=0.0) * tl.load(
                            d + base + at, mask=there, other=0.0
                        )
                        y = tl.load(Y + memory + last * P + at, mask=there, other=0.0)
                        latest += y * y
                    dot = tl.sum(first_dot, axis=0)
                    newest = tl.load(rho + b * MEMORY + last)
                    curvature = 1 / (newest * tl.maximum(tl.sum(latest, axis=0), 1e-37))
                    for i in range(count):
                        slot = (last + 2 * MEMORY - i) % MEMORY
                        before = (last + 2 * MEMORY - i - 1) % MEMORY
                        a = dot * tl.load(rho + b * MEMORY + slot)
                        tl.store(alpha + b * MEMORY + slot, a)
                        of_oldest = tl.where(i == count - 1, P, 0)
                        factor = tl.where(i == count - 1, curvature, 1.0)
                        next_dot = tl.zeros((BLOCK,), tl.float32)
                        for start in range(0, P, BLOCK):
                            at = start + off
                            there = at < P
                            v = tl.load(d + base + at, mask=there, other=0.0)
                            v -= a * tl.load(Y + memory + slot * P + at, mask=there, other=0.0)
                            v *= factor
                            tl.store(d + base + at, v, mask=there)
                            # the pair before, or where there is none the first product of the way back
                            s = tl.load(S + memory + before * P + at, mask=there & (at >= of_oldest), other=0.0)
                            y = tl.load(Y + memory + slot * P + at, mask=at < of_oldest, other=0.0)
                            next_dot += v * (s + y)
                        dot = tl.sum(next_dot, axis=0)
                        tl.debug_barrier()
                    for i in range(count):
                        slot = (last + 2 * MEMORY - count + 1 + i) % MEMORY
                        after = (slot + 1) % MEMORY
                        more = tl.load(alpha + b * MEMORY + slot) - dot * tl.load(rho + b * MEMORY + slot)
                        next_dot = tl.zeros((BLOCK,), tl.float32)
                        for start in range(0, P, BLOCK):
                            at = start + off
                            there = at < P
                            v = tl.load(d + base + at, mask=there, other=0.0)
                            v += more * tl.load(S + memory + slot * P + at, mask=there, other=0.0)
                            tl.store(d + base + at, v, mask=there)
                            next_dot += v * tl.load(Y + memory + after * P + at, mask=there, other=0.0)
                        dot = tl.sum(next_dot, axis=0)
                        tl.debug_barrier()
                along = tl.zeros((BLOCK,), tl.float32)
                steep = tl.zeros((BLOCK,), tl.float32)
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    slopes = tl.load(g + base + at, mask=there, other=0.0)
                    along += slopes * tl.load(d + base + at, mask=there, other=0.0)
                    steep += slopes * slopes
                down = -tl.sum(along, axis=0)
                downhill = down < 0
                down = tl.where(downhill, down, -tl.sum(steep, axis=0))
                tl.debug_barrier()
                for start in range(0, P, BLOCK):
                    at = start + off
                    there = at < P
                    v = tl.load(d + base + at, mask=there, other=0.0)
                    slopes = tl.load(g + base + at, mask=there, other=0.0)
                    tl.store(d + base + at, tl.where(downhill, -v, -slopes), mask=there)
                tl.debug_barrier()
                far = tl.where(n > 0, 1.0, far)
                tl.store(loss + b, new)
                tl.store(slope + b, down)
                tl.store(pairs + b, n)
            else:
                stalled = tl.where(-far * down <= little, stalled + 1, stalled)
                # the minimum of the parabola through both losses and the slope, kept between a tenth and a half
                parabola = -down * far / (2 * ((new - old) / far - down))
                finite = tl.abs(parabola) < float("inf")  # not of what is no number either
                far = tl.minimum(tl.maximum(tl.where(finite, parabola, far / 10), far / 10), far / 2)
            greatest = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, P, BLOCK):
                at = start + off
                greatest = tl.maximum(greatest, tl.abs(tl.load(g + base + at, mask=at < P, other=0.0)))
            still = (stalled >= STALLS) | (tl.max(greatest, axis=0) <= 0)
            tl.store(length + b, far)
            tl.store(stalls + b, stalled)
            tl.store(status + b, tl.where(still, 1, 0))
            tl.store(n_iter + b, tl.load(n_iter + b) + 1)
            ahead = tl.where(still, 0.0, far)
            for start in range(0, P, BLOCK):
                at = start + off
                there = at < P
                unit = tl.load(scale + b * width + at % width, mask=there, other=0.0)
                v = tl.load(x + base + at, mask=there, other=0.0)
                v += ahead * tl.load(d + base + at, mask=there, other=0.0)
                tl.store(theta + base + at, v * unit, mask=there)

    return advance
