//go:build e2e

package install

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const namespace = "globalreserve-system"

// rendering is what somebody applies.
type rendering struct {
	name    string
	objects []*unstructured.Unstructured
}

// charts are the values with which the chart is rendered: each mode, and each value that changes what the server does.
var charts = map[string][]string{
	"standalone":         nil,
	"one replica":        {"replicas=1"},
	"Fail":               {"admission=Fail", authority},
	"Fail, cert-manager": {"admission=Fail", "tls.source=cert-manager"},
	"Ignore":             {"admission=Ignore", authority},
	"Warn, page, policy, alerts and traces": {
		"admission=Warn", authority, "ui.enabled=true", "monitoring.enabled=true", "extraArgs={--log-level=debug}", traces,
		"policy.schedulers[0].name=default-scheduler", "policy.reservations.maxTTL=1h",
	},
	"observe":      {"observe=true", "admission=Fail", authority},
	"monitoring":   {"monitoring.enabled=true"},
	"in-scheduler": {"mode=in-scheduler"},
	"in-scheduler, Warn and page": {
		"mode=in-scheduler", "admission=Warn", authority, "scheduler.name=other-scheduler", "ui.enabled=true",
	},
	"static-pod": {"mode=static-pod", "staticPod.user=" + staticUser},
	"static-pod, Fail, page and traces": {
		"mode=static-pod", "staticPod.user=" + staticUser, "admission=Fail", authority, "ui.enabled=true", traces,
	},
	"static-pod, observe": {"mode=static-pod", "staticPod.user=" + staticUser, "observe=true"},
}

// authority is that of no certificate: tests put their own in its place.
const authority = "tls.caCert=-----BEGIN CERTIFICATE-----"

// traces go to where nobody listens, which no server minds.
const traces = "tracing.endpoint=127.0.0.1:1"

// overlays renders every folder of manifests/ that has a kustomization.
func overlays(t *testing.T) (all []rendering) {
	t.Helper()
	root := testbed.File(t, "manifests")
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "kustomization.yaml" {
			folder := filepath.Dir(path)
			name, err := filepath.Rel(root, folder)
			require.NoError(t, err)
			all = append(all, rendering{name, kustomize(t, folder)})
		}
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

func kustomize(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	require.NoError(t, err)
	content, err := resources.AsYaml()
	require.NoError(t, err)
	return documents(t, content)
}

func documents(t *testing.T, content []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := controlplane.Documents(content)
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	return objects
}

// helm renders the chart.
func helm(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	args := []string{"template", "globalreserve", testbed.File(t, "charts", "globalreserve"), "--namespace", namespace}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	run := exec.CommandContext(t.Context(), testbed.File(t, "bin", "tools", "helm"), args...)
	var problem bytes.Buffer
	run.Stderr = &problem
	content, err := run.Output()
	require.NoError(t, err, "%s", problem.String())
	return documents(t, content)
}

// The chart says nothing that manifests/ does not: with the values of an overlay it renders the same objects.
func TestChartRendersTheOverlays(t *testing.T) {
	for chart, folders := range map[string][]string{
		"standalone":         {"base"},
		"one replica":        {"single"},
		"Fail":               {"admission/base"},
		"Fail, cert-manager": {"admission/cert-manager"},
		"Ignore":             {"admission/ignore"},
		"in-scheduler":       {"scheduler/second-local"},
		"monitoring":         {"base", "monitoring"},
	} {
		t.Run(chart, func(t *testing.T) {
			want := map[string]map[string]any{}
			for _, folder := range folders {
				decoded(t, want, kustomize(t, testbed.File(t, "manifests", folder)))
			}
			got := map[string]map[string]any{}
			decoded(t, got, helm(t, charts[chart]...))
			for key := range want {
				assert.Equal(t, want[key], got[key], key)
				delete(got, key)
			}
			assert.Empty(t, got, "these are in no overlay")
		})
	}
	t.Run("static-pod", func(t *testing.T) {
		content, err := controlplane.ReadFile("manifests", "static-pod", "globalreserve.yaml")
		require.NoError(t, err)
		objects := helm(t, "mode=static-pod")
		assert.Equal(t, documents(t, content), documents(t, []byte(staticFile(t, objects, "globalreserve.yaml"))))
		want, got := map[string]map[string]any{}, map[string]map[string]any{}
		decoded(t, want, kustomize(t, testbed.File(t, "manifests", "static-pod")))
		decoded(t, got, objects)
		delete(got, "ConfigMap "+namespace+"/globalreserve-static-pod") // the files, which manifests/ has as such
		assert.Equal(t, want, got)
	})
}

// Overlays that documents show for the reader's own folder beside base/ are ones that kustomize takes.
func TestDocumentedOverlaysRender(t *testing.T) {
	block := regexp.MustCompile(`(?m)^ {4}resources: \[\.\./base\]\n(?:(?: {4}.*)?\n)+`)
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(testbed.File(t, "manifests"))))
	for _, folder := range []string{root, filepath.Join(root, "admission")} {
		page, err := os.ReadFile(filepath.Join(folder, "README.md"))
		require.NoError(t, err)
		found := block.FindAll(page, -1)
		require.Len(t, found, 1, folder)
		own := filepath.Join(folder, "own")
		require.NoError(t, os.Mkdir(own, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(own, "kustomization.yaml"), found[0], 0o600))
		assert.NotEqual(t, kustomize(t, filepath.Join(folder, "base")), kustomize(t, own), "its patches change something")
	}
}

// staticFile is a file that the chart has for the nodes, "" where it has none of that name.
func staticFile(t *testing.T, objects []*unstructured.Unstructured, name string) string {
	t.Helper()
	content, _, err := unstructured.NestedString(find(t, objects, "ConfigMap", "globalreserve-static-pod").Object, "data",
		name)
	require.NoError(t, err)
	return content
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	require.Failf(t, "not rendered", "%s %s", kind, name)
	return nil
}

// decoded puts objects into a map without what differs for a reason: helm makes the namespace itself, definitions are
// kept when a release is uninstalled, an overlay leaves the authority to who applies it, and comments of a
// configuration are not part of it.
func decoded(t *testing.T, into map[string]map[string]any, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		object = object.DeepCopy()
		switch {
		case object.GetKind() == "Namespace":
			continue
		case object.GetKind() == "CustomResourceDefinition":
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "helm.sh/resource-policy")
		case strings.HasSuffix(object.GetKind(), "WebhookConfiguration"):
			for _, w := range object.Object["webhooks"].([]any) {
				unstructured.RemoveNestedField(w.(map[string]any), "clientConfig", "caBundle")
			}
		case object.GetKind() == "ConfigMap":
			for name, text := range object.Object["data"].(map[string]any) {
				var content any
				require.NoError(t, yaml.Unmarshal([]byte(text.(string)), &content))
				object.Object["data"].(map[string]any)[name] = content
			}
		}
		into[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
	}
}
