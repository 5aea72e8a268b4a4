"""An MPI program without a compiler: Open MPI's library through ctypes. Prints one line a rank."""

import ctypes
import os

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world = ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
integer = ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_int"))
add = ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_op_sum"))
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(ctypes.c_void_p(world), ctypes.byref(rank))
mpi.MPI_Comm_size(ctypes.c_void_p(world), ctypes.byref(size))
pointers = [ctypes.c_void_p(one) for one in (integer, add, world)]
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, *pointers)
print(f"rank {rank.value} of {size.value}, sum {total.value} on {os.uname().nodename}", flush=True)
mpi.MPI_Finalize()
