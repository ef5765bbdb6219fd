// Package flood has the tests of hostile load, on a real control plane: many clients that flood the server, or are
// slow, or hold what they do not use. What others ask is answered all the same. What the server asks of the API server
// does not wait for what tenants ask there.
//
// Times on a machine that is shared say little by themselves: the test measures the same without the load first, and
// prints both.
package flood
