/*
Package limits holds the tests of what a namespace, however it tries, may have: its ResourceQuota and the policy's limits
on every integration path, on a real control plane whose API server asks the server's webhook.

GLOBALRESERVE_TENANT_TIME says for how long the tenant tries, a few seconds unless it is set; five minutes show more.
*/
package limits
