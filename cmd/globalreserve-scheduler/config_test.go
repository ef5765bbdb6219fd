package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// With the ledger in the scheduler there is one election, and it is that of all profiles.
func TestCheckFile(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "scheduler-config", "plugin", "local.yaml"))
	require.NoError(t, err)
	local := string(content)
	const off, profiles = "leaderElect: false", "\nprofiles:\n"
	require.Contains(t, local, off)
	require.Contains(t, local, profiles)
	with := func(profile string) string { return strings.Replace(local, profiles, profiles+profile, 1) }
	cases := map[string]struct {
		config string
		flags  []string
		err    string // "" for none
	}{
		"as shipped": {config: local},
		"two elections": {
			config: strings.Replace(local, off, "leaderElect: true", 1),
			err:    "set leaderElection.leaderElect to false",
		},
		"two elections by default": {
			config: strings.Replace(local, off, "leaseDuration: 15s", 1),
			err:    "set leaderElection.leaderElect to false",
		},
		"two elections by a flag": {
			config: local, flags: []string{"--leader-elect"},
			err: "set leaderElection.leaderElect to false",
		},
		"a flag switches it off": {
			config: strings.Replace(local, off, "leaderElect: true", 1),
			flags:  []string{"--leader-elect=false"},
		},
		"a profile without a plugin": {
			config: with("- schedulerName: other\n"),
			err:    "profile other does not have the plugin",
		},
		"a profile that lets pods through": {
			config: strings.Replace(local, "    bind:\n", "    preEnqueue: {disabled: [{name: GlobalReserve}]}\n    bind:\n", 1),
			err:    "profile default-scheduler does not have the plugin",
		},
		"args that cannot be read": {
			config: strings.Replace(local, "reservationTTL: 60s", "reservationTTL: 1ms", 1),
			err:    "is too short",
		},
		"no configuration": {config: "{}", err: "--config"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.config), 0o600))
			command := app.NewSchedulerCommand()
			require.NoError(t, command.ParseFlags(append(tc.flags, "--config="+file)))
			err := checkFile(command, nil)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, file)
			assert.ErrorContains(t, err, tc.err)
		})
	}
}

// Without a file there is no plugin, and nothing to check.
func TestCheckFileWithoutOne(t *testing.T) {
	require.NoError(t, checkFile(app.NewSchedulerCommand(), nil))
}
