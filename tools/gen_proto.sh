#!/bin/sh
# Generates the protobuf and gRPC modules with their type stubs beside the .proto files. Run after changing one; the result is checked in.
# Needs grpcio-tools and mypy-protobuf in the virtual environment.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
BIN=$(dirname "$PYTHON")
"$PYTHON" -m grpc_tools.protoc -I. \
    --plugin=protoc-gen-mypy="$BIN/protoc-gen-mypy" --plugin=protoc-gen-mypy_grpc="$BIN/protoc-gen-mypy_grpc" \
    --python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. \
    cuzk_engine/proto/engine_v1.proto cuzk_engine/proto/cuzk_v1.proto
