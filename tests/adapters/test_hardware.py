"""What evidence was gathered on, as far as it can be seen."""

from specops.adapters.hardware import ask, environment_profile, hardware_profile
from specops.core.release import ArtifactKind

SMI = "NVIDIA H200, 143771 MiB, 580.82.07, 9.0\nNVIDIA H200, 143771 MiB, 580.82.07, 9.0\nbroken line\n"


def test_gpus_are_told_by_nvidia_smi(tmp_path):
    """Name, memory, driver and compute capability; a line of another form is left out."""
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Some CPU\n", encoding="utf-8")

    profile = hardware_profile(attention="FLASH_ATTN", processors=tmp_path / "cpuinfo", run=lambda _: SMI)

    found = profile.properties
    assert (profile.kind, profile.name, found["attention"]) == (ArtifactKind.HARDWARE, "Some CPU, 2 GPU", "FLASH_ATTN")
    assert found["gpus"][0] == {
        "name": "NVIDIA H200", "memory.total": "143771 MiB", "driver_version": "580.82.07", "compute_cap": "9.0",
    }  # fmt: skip


def test_a_machine_without_tools_is_still_described(tmp_path):
    """Nothing is guessed and nothing fails."""
    found = hardware_profile(processors=tmp_path / "absent", run=lambda _: "").properties

    assert found["gpus"] == []
    assert "attention" not in found
    assert found["cores"] > 0
    assert found["memory_mib"] > 0


def test_another_kernel_is_another_scope():
    """Attention kernels round differently, so evidence of one is none for the other."""
    one, two = (hardware_profile(attention=name, run=lambda _: "") for name in ("sdpa", "eager"))

    assert one.digest != two.digest


def test_a_command_that_is_not_there_or_fails_says_nothing():
    """Asked, not needed."""
    assert ask(["specops-no-such-command"]) == ask(["false"]) == ""
    assert ask(["echo", "x"]) == "x\n"


def test_an_environment_names_versions_and_installed_files():
    """Packages that are not installed are left out."""
    profile = environment_profile(["numpy", "specops-no-such-package"])

    (name, found), = profile.properties["packages"].items()  # fmt: skip
    assert (profile.kind, name) == (ArtifactKind.ENVIRONMENT, "numpy")
    assert set(found) == {"version", "record_sha256"}
    assert environment_profile(["numpy"]).digest == profile.digest
