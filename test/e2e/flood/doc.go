// Package flood has the tests of hostile load, on a real control plane: many clients that flood the server, or are slow,
// or hold what they do not use, and tenants that flood the API server. What others ask is answered all the same.
//
// Times on a machine that is shared say little by themselves: each test measures the same without the load first, and
// prints both.
package flood
