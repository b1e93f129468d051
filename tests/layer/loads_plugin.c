#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_run") : NULL;
  if (!run) return puts(dlerror()), 1;
  return run() || dlclose(plugin);
}
