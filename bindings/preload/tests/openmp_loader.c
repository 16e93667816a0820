/* openmp_loader LIBRARY ...: runs the main function of a library that it loads, whose symbols and runtime the program doesn't see. */
#include <dlfcn.h>
#include <stdio.h>

#include <gosched.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "main") : NULL;
    if (run == NULL || gs_self() != NULL) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: openmp_loader LIBRARY ...");
        return 2;
    }
    return run(argc - 1, argv + 1);
}
