/* Ends a test's program that cannot do its work. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define NEED(what)   \
  do {               \
    if (!(what)) {   \
      perror(#what); \
      exit(1);       \
    }                \
  } while (0)
