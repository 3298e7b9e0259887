"""`specops lineage export`, `import-bundle`, `sign`, `verify-signature`: lineage that leaves this site or comes to it."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.lineage import Json, app
from specops.cli.render import emit_json, emit_table

if TYPE_CHECKING:
    from specops.core.slice import Bundle


class Format(StrEnum):
    """What to write."""

    BUNDLE = "bundle"
    CYCLONEDX = "cyclonedx"
    OPENLINEAGE = "openlineage"
    INTOTO = "intoto"


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="Release, pair or artifact: name, id or digest.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    format_: Annotated[
        Format, typer.Option("--format", help="bundle: for another specops; intoto: signed statement about the pair.")
    ] = Format.BUNDLE,
) -> None:
    """Write a release, pair or artifact with all that it stands on, for another site, a scanner or a catalogue."""
    from specops.control.exchange import collect  # noqa: PLC0415
    from specops.errors import InvalidInput  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        with house.store.read() as unit:
            bundle = collect(unit, name)
        try:
            _write(bundle, out, format_, house.signer)
        except OSError as exc:
            raise InvalidInput(f"cannot write {out}: {exc.strerror}; give another --out") from exc
    part = bundle.part
    counts = f"{len(part.artifacts)} artifacts, {len(part.edges)} edges, {len(part.evidence)} findings"
    typer.echo(f"written: {out} ({format_}: {counts})")
    if format_ is Format.BUNDLE:
        typer.echo(f"give the receiver your public key on another way: {house.signer.public_key.to_line()}")


def _write(bundle: "Bundle", out: Path, format_: Format, signer: Any) -> None:  # noqa: ANN401  # adapters.signing.Signer
    """Write one format."""
    import json  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    from specops.wiring import now  # noqa: PLC0415

    if format_ is Format.BUNDLE:
        from specops.adapters.lineage_bundle import write_bundle  # noqa: PLC0415

        write_bundle(out, bundle, signer)
        return
    if format_ is Format.CYCLONEDX:
        from specops.adapters.cyclonedx import to_cyclonedx  # noqa: PLC0415

        content: Any = to_cyclonedx(bundle.part, at=now(), version=version("specops"))
    elif format_ is Format.OPENLINEAGE:
        from specops.adapters.openlineage import to_openlineage  # noqa: PLC0415

        content = to_openlineage(bundle.part, at=now())
    else:
        content = _statement(bundle, signer)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _statement(bundle: "Bundle", signer: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the sealed statement about the slice's pair."""
    from specops.adapters.dsse import seal  # noqa: PLC0415
    from specops.adapters.intoto import pair_proof  # noqa: PLC0415
    from specops.errors import InvalidInput  # noqa: PLC0415

    if not bundle.part.pairs:
        raise InvalidInput(f"{bundle.part.subject} has no proven pair to state; prove one: specops release prove-pair")
    pair = bundle.part.pairs[0]
    members = [a for a in bundle.part.artifacts if a.digest in pair.components]
    return seal(pair_proof(pair, members, bundle.part.evidence), signer)


@app.command("import-bundle")
def import_bundle(
    file: Annotated[Path, typer.Argument(help="The tar of `specops lineage export`.")],
    key: Annotated[Path | None, typer.Option(help="The exporter's .pub file, got on another way.")] = None,
    files: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FOLDER", help="Also re-hash an artifact's files in a folder; repeatable.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Take in a bundle from another site: every digest is computed again, nothing is believed that can be checked."""
    from dataclasses import asdict  # noqa: PLC0415

    from specops.adapters.lineage_bundle import read_bundle  # noqa: PLC0415
    from specops.adapters.signing import PublicKey  # noqa: PLC0415
    from specops.control.exchange import take_in  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    bundle, sealed_by = read_bundle(file, PublicKey.load(key) if key else None)
    _check_files(bundle, files or [])
    with opened() as house, house.store.begin() as unit:
        taken = take_in(unit, bundle, origin=sealed_by.to_line(), actor=house.settings.who, now=now())
    if json:
        sender = {"sealed_by": sealed_by.to_line(), "trusted": key is not None}
        return emit_json({"subject": bundle.part.subject} | sender | asdict(taken))
    emit_table(f"new from {bundle.part.subject}", ("what", "new"), list(asdict(taken).items()))
    if key is None:
        typer.echo(f"sealed by {sealed_by.to_line()}, as the bundle itself says; compare it with the sender's, or pass --key")
    return None


def _check_files(bundle: "Bundle", pairs: list[str]) -> None:
    """Re-hash the files of the artifacts that the user points to."""
    from specops.adapters.weights import verify_artifact  # noqa: PLC0415
    from specops.errors import InvalidInput  # noqa: PLC0415

    by_name = {key: a for a in bundle.part.artifacts for key in (a.name, a.digest)}
    for text in pairs:
        name, _, folder = text.rpartition("=")
        if name not in by_name:
            known = ", ".join(a.name for a in bundle.part.artifacts)
            raise InvalidInput(f"the bundle has no artifact {name!r}; expected NAME=FOLDER with one of: {known}")
        verify_artifact(by_name[name], Path(folder))


@app.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="The model's folder.")],
    signature: Annotated[Path, typer.Option(help="File to write.")],
    private_key: Annotated[Path, typer.Option(help="PEM file of an elliptic-curve key.")],
) -> None:
    """Sign a model folder in the OpenSSF format (extra: signing)."""
    from specops.adapters.model_signing import sign_folder  # noqa: PLC0415

    sign_folder(folder, signature, private_key=private_key)
    typer.echo(f"written: {signature}")


@app.command("verify-signature")
def verify_signature(
    folder: Annotated[Path, typer.Argument(help="The model's folder.")],
    signature: Annotated[Path, typer.Option(help="The signature that came with it.")],
    public_key: Annotated[Path, typer.Option(help="PEM file of the signer's public key.")],
    *,
    json: Json = False,
) -> None:
    """Check a model folder against an OpenSSF signature (extra: signing); exit 1 names what differs."""
    from specops.adapters.model_signing import verify_signature as check  # noqa: PLC0415

    check(folder, signature, public_key=public_key)
    if json:
        return emit_json({"folder": folder, "signature": signature, "public_key": public_key, "same": True})
    return typer.echo(f"{folder} is what {signature} signs")
