//go:build e2e

package ui

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// token makes a service account and returns a token of it.
func (c *cluster) token(name string) string {
	c.T.Helper()
	accounts := c.Client().CoreV1().ServiceAccounts(testbed.Namespace)
	_, err := accounts.Create(c.T.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	require.NoError(c.T, err)
	token, err := accounts.CreateToken(c.T.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	return token.Status.Token
}

func account(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: testbed.Namespace, Name: name}}
}

// enter shows the page a token.
func (c *cluster) enter(token string) {
	c.T.Helper()
	c.browser.open("about:blank")
	c.browser.open(c.guarded)
	c.browser.shows("Who are you?")
	c.browser.do(command{Do: "fill", Selector: "input[type=password]", Text: token}, nil)
	c.browser.click("button[type=submit]")
}

// tenant: who may see the pods of one namespace sees amounts of the others, and no names.
func tenant(c *cluster) {
	require.NoError(c.T, clusterload.GrantRoles(c.T.Context(), c.ControlPlane))
	rbac := c.Client().RbacV1()
	everywhere, err := rbac.ClusterRoleBindings().Create(c.T.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "page-tenant"}, Subjects: account("tenant"),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "globalreserve-tenant"},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	require.NoError(c.T, c.AwaitRights(c.T.Context(), (*rbacv1.RoleBinding)(everywhere)))
	ours := c.In(c.T, "tenant-a")
	theirs := c.In(c.T, "secret-b")
	_, err = rbac.Roles("tenant-a").Create(c.T.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""},
			Resources: []string{"pods"}, Verbs: []string{"list"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	inside, err := rbac.RoleBindings("tenant-a").Create(c.T.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Subjects: account("tenant"),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	require.NoError(c.T, c.AwaitRights(c.T.Context(), inside))
	on := func(pod *corev1.Pod) { pod.Spec.NodeName = c.nodes[3] }
	ours.CreatePod("our-pod", testbed.Nobody, "1", on)
	theirs.CreatePod("secret-pod", "secret-scheduler", "2", on)

	c.enter(c.token("tenant"))
	c.browser.shows("every 3 s")
	c.sameAsServer()
	c.browser.fine("map of a tenant")
	seen := c.browser.text()
	c.browser.open(c.guarded + "/#/node/" + c.nodes[3])
	c.browser.shows("tenant-a/our-pod")
	c.browser.shows("a pod you may not see")
	seen += c.browser.text()
	for _, view := range []string{"waiting", "reservations", "conflicts"} {
		c.browser.open(c.guarded + "/#/" + view)
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
	c.enter(c.token("stranger"))
	c.browser.shows("You lack a right")
	c.browser.shows(
		`"system:serviceaccount:default:stranger" may not GET /v1/nodes: a role has to give it the verb get on that nonResourceURL`,
	)
	c.browser.fine("the page of rights")
}
