package manifests_test

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

// The list is written out here once more: more rights than these are a decision, not an accident.
func TestClusterRoleGrantsNoMoreThanNeeded(t *testing.T) {
	objects := build(t, "base")
	role := named[*rbacv1.ClusterRole](t, objects, "globalreserve")
	granted := map[string][]string{}
	for _, rule := range role.Rules {
		assert.Empty(t, rule.NonResourceURLs)
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				key := strings.TrimPrefix(group+"/"+resource, "/")
				granted[key] = append(granted[key], rule.Verbs...)
			}
		}
	}
	assert.Equal(t, map[string][]string{
		"nodes":                                {"get", "list", "watch", "patch"},
		"pods":                                 {"get", "list", "watch", "patch"},
		"pods/binding":                         {"create"},
		"resourcequotas":                       {"get", "list", "watch"},
		"pods/status":                          {"patch"},
		"apps/deployments":                     {"list", "watch"},
		"globalreserve.io/reservations":        {"get", "list", "watch", "create", "patch", "delete"},
		"globalreserve.io/reservations/status": {"update"},

		"globalreserve.io/ledgerterms":        {"list", "watch", "create", "get", "update"},
		"globalreserve.io/ledgerterms/status": {"update"},

		"globalreserve.io/extendedresources":              {"get", "list", "watch"},
		"globalreserve.io/extendedresources/status":       {"update"},
		"globalreserve.io/extendedresourceclaims":         {"get", "list", "watch", "create", "patch"},
		"globalreserve.io/extendedresourceclaimtemplates": {"get", "list", "watch"},
		"globalreserve.io/extendedresourceclaims/status":  {"update"},
		"scheduling.k8s.io/podgroups":                     {"get", "list", "watch"},
		"scheduling.volcano.sh/podgroups":                 {"get", "list", "watch"},
		"scheduling.x-k8s.io/podgroups":                   {"get", "list", "watch"},
		"scheduling.sigs.k8s.io/podgroups":                {"get", "list", "watch"},
		"scheduling.godel.kubewharf.io/podgroups":         {"get", "list", "watch"},
		"resource.k8s.io/deviceclasses":                   {"get", "list", "watch"},
		"resource.k8s.io/resourceclaims":                  {"get", "list", "watch", "patch"},
		"resource.k8s.io/resourceslices":                  {"get", "list", "watch"},
		"autoscaling.x-k8s.io/provisioningrequests":       {"list", "watch", "create", "delete"},
		"podtemplates":         {"get", "create"},
		"events":               {"create", "patch"},
		"events.k8s.io/events": {"create", "patch"},
		"admissionregistration.k8s.io/validatingadmissionpolicybindings": {"get"},
		"authentication.k8s.io/tokenreviews":                             {"create"},
		"authorization.k8s.io/subjectaccessreviews":                      {"create"},
	}, granted)
	for _, k := range kinds.Default() {
		if k.Object != nil {
			assert.Contains(t, granted, k.Object.Group+"/"+k.Object.Resource, "objects of gangs of kind %s", k.Name)
		}
	}

	binding := named[*rbacv1.ClusterRoleBinding](t, objects, "globalreserve")
	account := one[*corev1.ServiceAccount](t, objects)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{
		Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace,
	}}, binding.Subjects)
}

// Who looks may not decide, and no role but the admin's is for all schedulers.
func TestRolesOfCallers(t *testing.T) {
	const deciding = "post /filter,post /prioritize,post /preempt,post /bind,post /reserve,post /unreserve,post /v1/whatif"
	objects := build(t, "base")
	for name, want := range map[string]struct{ paths, use, verbs string }{
		"globalreserve-scheduler": {deciding + ",get /v1/*,get /openapi.yaml", "", "reserve"},
		"globalreserve-viewer":    {"post /v1/whatif,get /v1/*,get /openapi.yaml,get /metrics", "", ""},
		"globalreserve-tenant": {
			"post /v1/whatif,get /v1/revision,get /v1/nodes,get /v1/nodes/*,get /v1/allocations,get /v1/reservations,get " +
				"/v1/gangs,get /v1/refusals,get /v1/pending,get /v1/explain,get /openapi.yaml", "", "",
		},
		"globalreserve-admin": {
			deciding + ",get /v1/*,get /openapi.yaml,get /metrics,get /debug/*", "all",
			"get+list+watch+create+update+patch+delete+reserve",
		},
		"globalreserve-drainer": {
			"post /v1/drain/plan,get /v1/reservations", "", "get+list+create+patch+delete",
		},
		"globalreserve-use-default-scheduler": {"", "default-scheduler", ""},
	} {
		var paths []string
		use, verbs := "", ""
		for _, rule := range named[*rbacv1.ClusterRole](t, objects, name).Rules {
			for _, path := range rule.NonResourceURLs {
				paths = append(paths, strings.Join(rule.Verbs, "+")+" "+path)
			}
			if slices.Contains(rule.Resources, "schedulers") {
				assert.Equal(t, []string{"use"}, rule.Verbs)
				use = cmp.Or(strings.Join(rule.ResourceNames, "+"), "all")
			}
			if slices.Contains(rule.Resources, "reservations") {
				verbs = strings.Join(rule.Verbs, "+")
			}
		}
		assert.Equal(t, want.paths, strings.Join(paths, ","), name)
		assert.Equal(t, want.use, use, name)
		assert.Equal(t, want.verbs, verbs, name)
	}
	for _, name := range []string{"globalreserve-kube-scheduler", "globalreserve-kube-scheduler-name"} {
		assert.Equal(t, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:kube-scheduler"}},
			named[*rbacv1.ClusterRoleBinding](t, objects, name).Subjects)
	}
}

func TestRightsToTheLease(t *testing.T) {
	objects := build(t, "base")
	role, binding := one[*rbacv1.Role](t, objects), one[*rbacv1.RoleBinding](t, objects)
	assert.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
			ResourceNames: []string{election.LeaseName}, Verbs: []string{"get", "update"},
		},
	}, role.Rules)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, binding.RoleRef)
	assert.Equal(t, named[*rbacv1.ClusterRoleBinding](t, objects, "globalreserve").Subjects, binding.Subjects)
}

// The server looks for the fence by its name, and the fence for the term by its object's.
func TestFence(t *testing.T) {
	objects := build(t, "base")
	fence := named[*admissionv1.ValidatingAdmissionPolicy](t, objects, election.FenceName)
	binding := named[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, election.FenceName)
	assert.Equal(t, election.FenceName, binding.Spec.PolicyName)
	assert.Equal(t, v1alpha1.LedgerTermName, binding.Spec.ParamRef.Name)
	assert.Equal(t, v1alpha1.SchemeGroupVersion.String(), fence.Spec.ParamKind.APIVersion)
	assert.Equal(t, admissionv1.Ignore, *fence.Spec.FailurePolicy, "bindings of others do not depend on it")
	assert.Equal(t, admissionv1.AllowAction, *binding.Spec.ParamRef.ParameterNotFoundAction)
	webhooks := one[*admissionv1.MutatingWebhookConfiguration](t, build(t, filepath.Join("admission", "base"))).Webhooks
	assert.Equal(t, webhooks[0].Rules[0].Resources, fence.Spec.MatchConstraints.ResourceRules[0].Resources,
		"what the webhook allows carries a term on each path there is")
}

// What the server asks goes before the tenants', and nothing of anybody else does.
func TestFlowSchemas(t *testing.T) {
	objects := build(t, "base")
	server := one[*corev1.ServiceAccount](t, objects)
	for name, level := range map[string]string{
		"globalreserve-lease": "leader-election", "globalreserve-reviews": "workload-high", "globalreserve": "workload-high",
	} {
		schema := named[*flowcontrolv1.FlowSchema](t, objects, name).Spec
		assert.Equal(t, level, schema.PriorityLevelConfiguration.Name)
		const systemAccounts = 900 // the schema kube-system-service-accounts
		assert.Less(t, schema.MatchingPrecedence, int32(systemAccounts))
		for _, rule := range schema.Rules {
			assert.Equal(t, []flowcontrolv1.Subject{{
				Kind:           flowcontrolv1.SubjectKindServiceAccount,
				ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: server.Namespace, Name: server.Name},
			}}, rule.Subjects)
		}
	}
}

// notOfServers are the names under globalreserve.io that others may write, too.
var notOfServers = map[string]string{
	"reservation": "a pod's owner asks by it", "reservation-index": "the same", "reservation-ttl": "the same",
	"extended-resource-claims": "the same; of a bound pod a rule of its own keeps it", "gang": "the same",
	"gang-min": "the same",
	"retry":    "its change has a scheduler try again", "binding-withdrawn": "its change outdates a write",
	"allocation-withdrawn":             "the same",
	"term":                             "the policy globalreserve-fence refuses others",
	"keeps-capacity":                   "of nodes, which tenants do not write",
	"extended-resource-claim-template": "for people; the owner of the claim counts",
	"extended-resource-claim-in-use":   "a finalizer",
	"uncountable-request":              "a resource",
	"drain":                            "of the Reservations of those who drain, for whom alone it counts",
	"drained-nodes":                    "the same, for people", "drained-owner": "the same",
	"drain-waits-for": "the same", "check": "of namespaces that kubectl reserve check makes",
}

// What servers write down for servers to come is theirs to write: each annotation and label that the product knows is
// in the policy globalreserve-records, or among those of others.
func TestRecordsAreComplete(t *testing.T) {
	var listed string
	for _, v := range named[*admissionv1.ValidatingAdmissionPolicy](t, build(t, "base"), "globalreserve-records").
		Spec.Variables {
		if v.Name == "labels" || v.Name == "annotations" {
			listed += v.Expression
		}
	}
	quoted := regexp.MustCompile(`"globalreserve\.io/([a-z-]+)"`)
	known := map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "pkg"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, found := range quoted.FindAllStringSubmatch(string(content), -1) {
			known[found[1]] = true
		}
		return err
	}))
	require.Contains(t, known, "caller")
	for name := range known {
		_, others := notOfServers[name]
		assert.NotEqual(t, others, strings.Contains(listed, "'globalreserve.io/"+name+"'"),
			"globalreserve.io/%s: list it in base/records.yaml, or say above why others may write it", name)
	}
}
