"""Sufficient statistics of least squares in six mergeable numbers, so that a live fit takes constant memory."""

from __future__ import annotations

from dataclasses import dataclass

from ggbench.stats.samples import Floats


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, means and centred sums of pairs: sufficient for least squares, and mergeable without cancellation.

    Source: Chan, Golub & LeVeque (1983), "Algorithms for computing the sample variance", The American Statistician 37.
    """

    count: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    sxx: float = 0.0
    sxy: float = 0.0
    syy: float = 0.0

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Moments:
        """Return the moments of two arrays of equal length."""
        if not len(x):
            return cls()
        mean_x, mean_y = float(x.mean()), float(y.mean())
        dx, dy = x - mean_x, y - mean_y
        return cls(len(x), mean_x, mean_y, float(dx @ dx), float(dx @ dy), float(dy @ dy))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of pairs together."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        weight = self.count * other.count / count
        return Moments(
            count,
            self.mean_x + dx * other.count / count,
            self.mean_y + dy * other.count / count,
            self.sxx + other.sxx + dx * dx * weight,
            self.sxy + other.sxy + dx * dy * weight,
            self.syy + other.syy + dy * dy * weight,
        )

    @property
    def slope(self) -> float:
        """Slope of the least-squares line; 0 where x does not vary."""
        return self.sxy / self.sxx if self.sxx > 0 else 0.0

    @property
    def intercept(self) -> float:
        """The line's value at x = 0."""
        return self.mean_y - self.slope * self.mean_x

    @property
    def r2(self) -> float | None:
        """Share of the variance of y explained by the line; None where x or y does not vary."""
        return min(1.0, self.sxy / self.sxx * self.sxy / self.syy) if self.sxx > 0 and self.syy > 0 else None
