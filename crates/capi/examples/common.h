/* What the examples have in common: how two programs find each other, and how they fail. */
#ifndef COMMON_H
#define COMMON_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <landfall.h>

enum { PATIENCE = 60000 };

#define MUST(condition)                                                                   \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #condition,        \
                    lf_error_code(), lf_error());                                         \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* The same for a function that returns whether it failed. */
static inline int failed(const char *what)
{
    fprintf(stderr, "%s: %d, %s\n", what, lf_error_code(), lf_error());
    return 1;
}

/* Tells others an address by a file, which appears whole: it is renamed. */
static inline void tell(const char *address, const char *where)
{
    char beside[4200];
    snprintf(beside, sizeof beside, "%s.new", where);
    FILE *file = fopen(beside, "w");
    MUST(file && fputs(address, file) >= 0 && fclose(file) == 0 && rename(beside, where) == 0);
}

/* Waits for such a file. */
static inline void find(char *address, size_t room, const char *where)
{
    const struct timespec moment = { 0, 5000000 };
    for (int i = 0; i < PATIENCE / 5; i++) {
        FILE *file = fopen(where, "r");
        if (file) {
            if (!fgets(address, (int)room, file))
                *address = '\0';
            fclose(file);
            return;
        }
        nanosleep(&moment, NULL);
    }
    fprintf(stderr, "%s is not there\n", where);
    exit(1);
}

#endif
