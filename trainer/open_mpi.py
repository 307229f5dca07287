"""Where rank 0 is, when Open MPI has started ranks on several machines that have no names: the pods
of an MPIJob."""

import ctypes
import socket
from contextlib import suppress
from functools import cache

_LIBRARY = "libmpi.so.40"
"""Of Open MPI 4 and 5."""


@cache
def address_of_first(rank: int) -> str:
    """Return the address of rank 0, as it tells all ranks; each of them has to ask.

    Empty if the library is not there, or rank 0 knows no address but loopback.
    """
    try:
        library = ctypes.CDLL(_LIBRARY, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return ""
    own = ""
    with suppress(OSError):  # the others wait for what it says, also where its name has no address
        own = socket.gethostbyname(socket.gethostname()) if rank == 0 else ""
    told = ctypes.create_string_buffer(b"" if own.startswith("127.") else own.encode(), 16)
    char, world = (
        ctypes.byref(ctypes.c_char.in_dll(library, f"ompi_mpi_{name}"))
        for name in ("char", "comm_world")
    )
    library.MPI_Init(None, None)
    library.MPI_Bcast(told, len(told), char, 0, world)
    library.MPI_Finalize()
    return told.value.decode()
