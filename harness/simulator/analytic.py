"""What type-aware placement can gain, by the paper's equations 1 to 3 (section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UsageError


@dataclass(frozen=True)
class Conversations:
    """``sessions`` of ``cached_tokens`` and ``rounds`` each, one after another, nothing shared."""

    sessions: int
    cached_tokens: float
    rounds: float
    token_bytes: float
    state_bytes: float

    @property
    def full_bytes(self) -> float:
        """S n k: full attention of all sessions."""
        return self.sessions * self.cached_tokens * self.token_bytes

    @property
    def all_states_bytes(self) -> float:
        """S R s: a state for each round of each session."""
        return self.sessions * self.rounds * self.state_bytes

    def write_back_bytes(self, dram_bytes: float) -> float:
        """Equation 1: all but what DRAM holds at the end; 0 if DRAM holds everything."""
        return max(self.full_bytes + self.all_states_bytes - dram_bytes, 0.0)

    def type_aware_bytes(self, spilled: float = 0.0) -> float:
        """Equation 2, with the share of states that spill to the SSD; UsageError outside 0 to 1."""
        if not 0 <= spilled <= 1:
            raise UsageError(f"a share of states lies between 0 and 1, not {spilled}")
        return self.full_bytes + spilled * self.all_states_bytes

    def lifetime_gain(self, dram_bytes: float, spilled: float = 0.0) -> float:
        """Equation 3: write-back's bytes over type-aware's; inf where the latter writes nothing."""
        ours = self.type_aware_bytes(spilled)
        return self.write_back_bytes(dram_bytes) / ours if ours else float("inf")

    @property
    def least_dram_bytes(self) -> float:
        """DRAM that the best case needs: one live state a session."""
        return self.sessions * self.state_bytes

    @property
    def least_ssd_bytes(self) -> float:
        """SSD that the best case needs: all full attention."""
        return self.full_bytes

    @property
    def dram_share(self) -> float:
        """DRAM over SSD of the best case (figure 5); falls as sessions grow longer."""
        return self.least_dram_bytes / self.least_ssd_bytes
