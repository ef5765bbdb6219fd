/*
Package limits holds the tests of what a namespace, however it tries, may have: its ResourceQuota and the policy's
limits, on a real control plane whose API server asks the server's webhook. That each path keeps to them is shown in
pkg/decide.
*/
package limits
