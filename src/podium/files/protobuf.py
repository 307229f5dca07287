"""Messages of Protocol Buffers, made of tables: no compiler, and no generated code."""

from collections.abc import Mapping
from typing import Any


def make_messages(package: str, declared: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the classes of messages by name, in a pool of their own: other packages register the
    same names in the common one.

    Args:
        package: Name of the proto package.
        declared: By message its fields, each with its number and its type, ``3 string``; ``3
            *string`` is a list, and a type may be another message. Fields that are left out are
            skipped when they come.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"podium-{package}.proto", package=package, syntax="proto3"
    )
    for message, fields in declared.items():
        written = file.message_type.add(name=message)
        for name, described in fields.items():
            number, kind = described.split()
            field = written.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in declared:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in declared
    }
