/* The cases of endpoints that are connected. */
#ifndef CONNECTED_CASES_H
#define CONNECTED_CASES_H

void connection(void);
void rejected(void);
void connected_memory(void);
void several_connections(void);
void event_descriptor(void);
void dead_connection(void);
void nobody_listens(void);
void other_carrier(void);
void with_socket(void);
void to_socket(void);

#endif
