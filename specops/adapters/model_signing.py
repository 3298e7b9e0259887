"""OpenSSF model signatures: sign a folder with an elliptic-curve key, and check a signature that came with a model.

Called by `specops lineage sign` and `verify-signature`, offline, with keys in files. The signature's own root does not bind
file names (sigstore/model-transparency), so identity stays `core.release`'; a checked signature is a finding about an artifact.

Written for model-signing 1.1.1, which needs pyOpenSSL and does not say so: both come with the extra `signing`.
"""

from pathlib import Path
from typing import Any

from specops.errors import InvalidInput, LineageBroken, MissingExtra


def sign_folder(folder: Path, signature: Path, *, private_key: Path) -> None:
    """Write a detached signature over every file of a folder.

    Args:
        folder: the model; a signature file inside it is left out.
        signature: file to write, a Sigstore bundle.
        private_key: PEM file of an elliptic-curve key (P-256, P-384 or P-521).

    Raises:
        MissingExtra: model-signing is not installed.
        InvalidInput: the folder or key cannot be used.
    """
    package = _package()
    _there(folder, private_key)
    hashing = package.hashing.Config().set_ignored_paths(paths=[signature], ignore_git_paths=True)
    try:
        config = package.signing.Config().use_elliptic_key_signer(private_key=private_key).set_hashing_config(hashing)
        config.sign(folder, signature)
    except (OSError, TypeError, ValueError) as exc:
        raise InvalidInput(f"cannot sign {folder} with {private_key}: {exc}; use a PEM file of an elliptic-curve key") from exc


def verify_signature(folder: Path, signature: Path, *, public_key: Path) -> None:
    """Check every file of a folder against a signature.

    Raises:
        MissingExtra: model-signing is not installed.
        InvalidInput: the folder, signature or key cannot be read.
        LineageBroken: the signature is not of this key, or a file differs from what was signed.
    """
    package = _package()
    _there(folder, signature, public_key)
    try:
        package.verifying.Config().use_elliptic_key_verifier(public_key=public_key).verify(folder, signature)
    except Exception as exc:
        # the library raises ValueError for a mismatch, and what its parsers raise (KeyError, protobuf errors) for bad files
        raise LineageBroken(f"{folder} is not what {signature.name} signs: {str(exc)[:300] or type(exc).__name__}") from exc


def _there(folder: Path, *files: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; point to the model's")
    for file in files:
        if not file.is_file():
            raise InvalidInput(f"no file {file}; give the path of the key or signature")


def _package() -> Any:  # noqa: ANN401  # a package of an optional extra
    try:
        import model_signing  # noqa: PLC0415
        import model_signing.hashing  # noqa: PLC0415
        import model_signing.signing  # noqa: PLC0415
        import model_signing.verifying  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise MissingExtra("model-signing with pyOpenSSL", "signing") from exc
    return model_signing
