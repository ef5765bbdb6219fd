package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidateCommand(t *testing.T) {
	tests := map[string]struct {
		file, out, errOut string
		valid             bool
	}{
		"defaults": {
			file: head, valid: true,
			out: `FILE: valid
# reservations.defaultTTL is not set: the server's flag --reservation-ttl applies
apiVersion: config.globalreserve.io/v1alpha1
autoscaling:
  holdBackPods: true
  protectNodes: true
  provisioningRequests:
    after: 30s
deletedPods:
  enabled: true
` + gangsPrinted + `kind: GlobalReservePolicy
prioritize:
  reservationMatch: 10
  resources:
  - name: cpu
    weight: 1
  - name: memory
    weight: 1
  strategy: MostAllocated
reservations:
  maxTTL: 24h0m0s
`,
		},
		"mistakes": {
			file: head + "x: 1\nreservations: {maxTTL: -1h}\n",
			errOut: `FILE: unknown field "x": correct its name or remove it
FILE: reservations.maxTTL: Invalid value: "-1h0m0s": must be longer than 0s
Error: FILE is not a valid policy
`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yaml")
			require.NoError(t, os.WriteFile(path, []byte(tt.file), 0o600))
			out, errOut, err := run("validate", path)
			assert.Equal(t, tt.valid, err == nil)
			assert.Equal(t, tt.out, string(bytes.ReplaceAll(out, []byte(path), []byte("FILE"))))
			assert.Equal(t, tt.errOut, string(bytes.ReplaceAll(errOut, []byte(path), []byte("FILE"))))
		})
	}
}

func TestValidateCommandUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no file":              {[]string{"validate"}, "accepts 1 arg(s), received 0"},
		"two files":            {[]string{"validate", "a", "b"}, "accepts 1 arg(s), received 2"},
		"a misspelled command": {[]string{"valdiate", "policy.yaml"}, `unknown command "valdiate" for "policy"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := run(tt.args...)
			require.ErrorContains(t, err, tt.want)
		})
	}
	out, _, err := run()
	require.NoError(t, err)
	assert.Contains(t, string(out), "validate", "the help")

	missing := filepath.Join(t.TempDir(), "none")
	_, errOut, err := run("validate", missing)
	require.Error(t, err)
	assert.Contains(t, string(errOut), "no such file")
	assert.NotContains(t, string(errOut), "Usage:")
}

func run(args ...string) (out, errOut []byte, err error) {
	var stdout, stderr bytes.Buffer
	cmd := NewCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.Execute()
	return stdout.Bytes(), stderr.Bytes(), err
}

// gangsPrinted is what is printed of gangs where the file says nothing.
const gangsPrinted = `gangs:
  deadline: 1m0s
  kinds:
  - name: globalreserve
    pods:
    - minimum: .metadata.annotations['globalreserve.io/gang-min']
      name: .metadata.annotations['globalreserve.io/gang']
  - name: kubernetes
    object:
      group: scheduling.k8s.io
      minimum: .spec.schedulingPolicy.gang.minCount
      resource: podgroups
      versions:
      - v1beta1
      - v1alpha3
      - v1alpha2
    pods:
    - name: .spec.schedulingGroup.podGroupName
  - name: volcano
    object:
      group: scheduling.volcano.sh
      minimum: .spec.minMember
      resource: podgroups
      tasks: .spec.minTaskMember
      versions:
      - v1beta1
    pods:
    - name: .metadata.annotations['scheduling.k8s.io/group-name']
      task: .metadata.annotations['volcano.sh/task-spec']
  - name: scheduler-plugins
    object:
      group: scheduling.x-k8s.io
      minimum: .spec.minMember
      resource: podgroups
      versions:
      - v1alpha1
    pods:
    - name: .metadata.labels['scheduling.x-k8s.io/pod-group']
  - name: koordinator
    object:
      group: scheduling.sigs.k8s.io
      minimum: .spec.minMember
      resource: podgroups
      versions:
      - v1alpha1
    pods:
    - name: .metadata.labels['pod-group.scheduling.sigs.k8s.io']
    - minimum: .metadata.labels['pod-group.scheduling.sigs.k8s.io/min-available']
      name: .metadata.labels['pod-group.scheduling.sigs.k8s.io/name']
    - minimum: .metadata.annotations['gang.scheduling.koordinator.sh/min-available']
      name: .metadata.annotations['gang.scheduling.koordinator.sh/name']
  - name: godel
    object:
      group: scheduling.godel.kubewharf.io
      minimum: .spec.minMember
      resource: podgroups
      versions:
      - v1alpha1
    pods:
    - name: .metadata.annotations['godel.bytedance.com/pod-group-name']
  redirect: WhenRefused
`
