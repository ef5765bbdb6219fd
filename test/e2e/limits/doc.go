/*
Package limits holds the tests of what a namespace, however it tries, may have: its ResourceQuota and the policy's
limits on every integration path, on a real control plane whose API server asks the server's webhook.
*/
package limits
