"""Wire protocols: the .proto files and the modules generated from them by tools/gen_proto.sh."""
