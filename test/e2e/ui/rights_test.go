//go:build e2e

package ui

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// enter shows the page a token.
func (c *cluster) enter(token string) {
	c.T.Helper()
	c.browser.open("about:blank")
	c.browser.open(c.guarded.URL)
	c.browser.shows("Who are you?")
	c.browser.do(command{Do: "fill", Selector: "input[type=password]", Text: token}, nil)
	c.browser.click("button[type=submit]")
}

// tenant: who may see the pods of one namespace sees amounts of the others, and no names.
func tenant(c *cluster) {
	require.NoError(c.T, clusterload.GrantRoles(c.T.Context(), c.ControlPlane))
	ours, theirs := c.In(c.T, "tenant-a"), c.In(c.T, "secret-b")
	c.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: page-tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: globalreserve-tenant}
subjects: [{kind: ServiceAccount, namespace: default, name: tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: tenant-a, name: pods}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: tenant-a, name: pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pods}
subjects: [{kind: ServiceAccount, namespace: default, name: tenant}]
`)
	on := func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[3] }
	ours.CreatePod("our-pod", testbed.Nobody, "1", on)
	theirs.CreatePod("secret-pod", "secret-scheduler", "2", on)

	c.enter(c.Token("tenant"))
	c.browser.shows("every 3 s")
	c.sameAsServer()
	c.browser.fine("map of a tenant")
	seen := c.browser.text()
	c.browser.open(c.guarded.URL + "/#/node/" + c.nodes[3])
	c.browser.shows("tenant-a/our-pod")
	c.browser.shows("a pod you may not see")
	seen += c.browser.text()
	for _, view := range []string{"waiting", "reservations", "conflicts"} {
		c.browser.open(c.guarded.URL + "/#/" + view)
		c.browser.wait(soon,
			"document.querySelector('h1').innerText.toLowerCase() === %q && !document.body.innerText.includes('Loading')", view)
		seen += c.browser.text()
	}
	assert.NotContains(c.T, seen, "secret")
	var held string
	c.browser.do(command{
		Do: "eval",
		Script: "JSON.stringify([...globalreserve.account.value.nodes.values()].flatMap(n => [...n.entries].map(e => " +
			"[e.key, e.scheduler])))",
	}, &held)
	assert.NotContains(c.T, held, "secret")
	c.browser.fine("views of a tenant")
}

// stranger: who may see nothing is told which right is missing.
func stranger(c *cluster) {
	c.enter(c.Token("stranger"))
	c.browser.shows("You lack a right")
	c.browser.shows(
		`"system:serviceaccount:default:stranger" may not GET /v1/nodes: a role has to give it the verb get on that nonResourceURL`,
	)
	c.browser.fine("the page of rights")
}
