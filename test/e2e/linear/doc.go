// Package linear shows that the servers of a cluster together behave like one: whatever several clients are
// answered while servers are killed, stopped and cut off, there is an order of their requests in which one
// simple account would have answered the same.
//
// Each history has nodes and pods of its own and eight clients, who ask all servers. model_test.go is the simple
// account, history_test.go what the clients do, nemesis_test.go what happens to the servers meanwhile. Porcupine
// looks for the order when all is over: see play_test.go.
//
// What is done is chosen by a seed, which is printed; when it is done depends on the machine. `make chaos` runs
// it.
package linear
