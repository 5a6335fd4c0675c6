/* What programs and peers should not do, case by case. */
#ifndef FABRIC_ABUSE_H
#define FABRIC_ABUSE_H

void overflowing_queue(void);
void unread_messages(void);
void renewed_memory(void);
void forked(void);
void other_version(void);
void connected_to_other_version(void);

/* An error is told in these words: they name the version, and go to the one who has begun this. */
void expect_other_version(const char *text);

#endif
