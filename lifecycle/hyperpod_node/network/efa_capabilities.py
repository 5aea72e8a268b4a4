"""Asks every EFA device whether it has RDMA read, through libibverbs and libefa, and prints the answers as JSON.

It is a separate program: a driver that crashes must not end the boot. Structures and constants are those of rdma-core's
public headers, infiniband/verbs.h and infiniband/efadv.h.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, Dict, List

RDMA_READ = 1 << 0  # EFADV_DEVICE_ATTR_CAPS_RDMA_READ


class DeviceAttributes(ctypes.Structure):
    """struct efadv_device_attr."""

    _fields_ = [
        ("comp_mask", ctypes.c_uint64),
        ("max_sq_wr", ctypes.c_uint32),
        ("max_rq_wr", ctypes.c_uint32),
        ("max_sq_sge", ctypes.c_uint16),
        ("max_rq_sge", ctypes.c_uint16),
        ("inline_buf_size", ctypes.c_uint16),
        ("reserved", ctypes.c_uint8 * 2),
        ("device_caps", ctypes.c_uint32),
        ("max_rdma_size", ctypes.c_uint32),
    ]


def devices() -> List[Dict[str, Any]]:
    """Return every device that libefa knows, with its capabilities. Raises OSError without the libraries."""
    verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    efa = ctypes.CDLL("libefa.so.1", use_errno=True)
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    verbs.ibv_close_device.argtypes = [ctypes.c_void_p]
    efa.efadv_query_device.argtypes = [ctypes.c_void_p, ctypes.POINTER(DeviceAttributes), ctypes.c_uint32]
    count = ctypes.c_int()
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    found = []
    for index in range(count.value):
        context = verbs.ibv_open_device(listed[index])
        if not context:
            continue
        attributes = DeviceAttributes()
        size = ctypes.sizeof(attributes)
        # Any other vendor's device answers EOPNOTSUPP.
        if efa.efadv_query_device(context, ctypes.byref(attributes), size) == 0:
            name = verbs.ibv_get_device_name(listed[index]).decode("ascii")
            found.append({"name": name, "rdma_read": bool(attributes.device_caps & RDMA_READ)})
        verbs.ibv_close_device(context)
    return found


if __name__ == "__main__":
    try:
        print(json.dumps({"devices": devices()}))
    except (OSError, AttributeError) as error:
        print(f"cannot ask: {error}", file=sys.stderr)
        sys.exit(1)
