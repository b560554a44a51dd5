"""Engine and reference model, driven side by side through every operation with a fake clock.

After each step both must show the same, the records so far must give the same state again, and
the engine's invariants must hold.
"""

from engine.harness import machine_settings
from engine.job_rules import JobRules

TestEngineAndModel = JobRules.TestCase
TestEngineAndModel.settings = machine_settings(examples=300, steps=80)
