"""A clock that moves only while somebody sleeps."""


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
