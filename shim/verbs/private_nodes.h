// The private version nodes, for provider libraries. rdma-core renames its one private node when
// the interface of providers changes: IBVERBS_PRIVATE_34 until release 56, then 57, 59, 64 and 65.
// This library has all of them, and these macros put a name into them. libibverbs.map defines the
// nodes.
#pragma once

// Uses the assembler, because only GCC has an attribute for symbol versions. Each later node gets a
// separate symbol, because clang's assembler allows one version per symbol.
#define RDMAEMU_IN_NODE(name, node)                                                      \
  __asm__(".globl rdmaemu_" #name "_" #node "\n.set rdmaemu_" #name "_" #node ", " #name \
          "\n.symver rdmaemu_" #name "_" #node ", " #name "@IBVERBS_PRIVATE_" #node);

// Sets the default version of a name. The linker does not take it from libibverbs.map when the name
// has other versions in the same file. "@@@" renames the symbol itself.
#define RDMAEMU_DEFAULT_NODE(name, node) \
  __asm__(".symver " #name ", " #name "@@@IBVERBS_PRIVATE_" #node);

// For a name that appeared after rdma-core 56.
#define RDMAEMU_IN_NODES_FROM_57(name) \
  RDMAEMU_IN_NODE(name, 59)            \
  RDMAEMU_IN_NODE(name, 64)            \
  RDMAEMU_IN_NODE(name, 65)            \
  RDMAEMU_DEFAULT_NODE(name, 57)

// For a name of rdma-core 56.
#define RDMAEMU_IN_ALL_NODES(name) \
  RDMAEMU_IN_NODE(name, 57)        \
  RDMAEMU_IN_NODE(name, 59)        \
  RDMAEMU_IN_NODE(name, 64)        \
  RDMAEMU_IN_NODE(name, 65)        \
  RDMAEMU_DEFAULT_NODE(name, 34)
