//go:build e2e

package callers

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// owner is the scheduler whose pods another one wants to keep from their nodes.
const owner = "owner-scheduler"

// reserveIn lets a ServiceAccount reserve in the tests' namespace, by a Role there.
func (c *cluster) reserveIn(account string) {
	c.T.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s}
rules: [{apiGroups: [globalreserve.io], resources: [reservations], verbs: [reserve]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [%[2]s]
`, account, accountOf(account)))
}

// A scheduler that may reserve in one namespace, over TLS and by its token, reserves for no pod of another scheduler
// that exists, and in no other namespace. What it reserves for a name, before there is a pod, does not keep the pod
// that comes from other nodes where that is another scheduler's: its own scheduler reserves for it there.
func TestReservingForOthers(t *testing.T) {
	c := newCluster(t)
	c.role("use-team", useTeam)
	c.role("reserve-only", reserveOnly)
	forger := c.withToken("forger")
	c.grant("reserve-only", accountOf("forger"))
	c.grant("use-team", accountOf("forger"))
	c.reserveIn("forger")
	useOwner := useTeam.DeepCopy()
	useOwner.ResourceNames = []string{owner}
	c.role("use-owner", *useOwner)
	c.grant("globalreserve-scheduler", userOf("owner"))
	c.grant("use-owner", userOf("owner"))
	its := c.withCertificate("owner")
	require.NoError(t, c.CreateNamespace(t.Context(), theirs))
	ask := func(who *caller, path, scheduler, node string, durable bool, pod *corev1.Pod) (int, string) {
		t.Helper()
		request := &reserver.Request{SchedulerName: scheduler, Pods: []*corev1.Pod{pod}, Nodes: []string{node}}
		if path == testbed.ReservePath {
			request.Durable = &durable
		}
		status, answer, err := who.ask(t.Context(), http.MethodPost, c.servers[1].tls+path, request)
		require.NoError(t, err)
		return status, answer
	}

	existing := c.CreatePod("existing", owner, "1")
	foreign := testbed.NewPod("foreign", team, "1")
	foreign.Namespace = theirs
	for _, durable := range []bool{false, true} {
		before := c.revision()
		status, answer := ask(forger, testbed.ReservePath, team, c.nodes[0], durable, existing)
		assert.Equal(t, http.StatusForbidden, status, answer)
		assert.Contains(t, answer, `pod `+c.Namespace+`/existing is one of scheduler \"`+owner)
		status, answer = ask(forger, testbed.ReservePath, team, c.nodes[0], durable, foreign)
		assert.Equal(t, http.StatusForbidden, status, answer)
		assert.Contains(t, answer, "may not reserve in namespace "+theirs)
		assert.Equal(t, before, c.revision())

		name := map[bool]string{false: "in-memory", true: "durable"}[durable]
		podToCome := testbed.NewPod(name, team, "1")
		podToCome.Namespace = c.Namespace
		status, answer = ask(forger, testbed.ReservePath, team, c.nodes[0], durable, podToCome)
		require.Equal(t, http.StatusOK, status, answer)
		require.Contains(t, answer, `"Error":""`)
		pod := c.CreatePod(name, owner, "1")
		c.Eventually(func(t *assert.CollectT) {
			status, answer := ask(its, testbed.ReservePath, owner, c.nodes[1], false, pod)
			assert.Equal(t, http.StatusOK, status, answer)
			assert.Contains(t, answer, `"Error":""`)
		})
		status, answer = ask(forger, testbed.ReservePath, team, c.nodes[0], durable, pod)
		assert.Equal(t, http.StatusForbidden, status, "it is not renewed: %s", answer)
		c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.keptOn(c.nodes[0])) })
		status, answer = ask(its, "/unreserve", owner, c.nodes[1], false, pod)
		assert.Equal(t, http.StatusOK, status, answer)
		assert.Contains(t, answer, `"Error":""`)
	}
}

// keptOn returns the slots on a node.
func (c *cluster) keptOn(node string) (kept []string) {
	c.T.Helper()
	var answer reserver.ReservationsAnswer
	require.NoError(c.T, c.servers[0].Get(c.T.Context(), "/v1/reservations", &answer))
	for i := range answer.Reservations {
		for k := range answer.Reservations[i].Slots {
			if slot := &answer.Reservations[i].Slots[k]; slot.Node == node {
				kept = append(kept, answer.Reservations[i].Name+"/"+slot.Name)
			}
		}
	}
	return kept
}
