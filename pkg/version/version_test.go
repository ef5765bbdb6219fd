package version

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.0.0-2026"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	tests := map[string]struct {
		linked  Info
		build   *debug.BuildInfo
		version string
		commit  string
		date    string
	}{
		"nothing known": {version: unknown, commit: unknown, date: unknown},
		"toolchain only": {
			build: recorded, version: "v0.0.0-2026", commit: "abc-dirty",
			date: "2026-01-02T03:04:05Z",
		},
		"linker wins": {
			linked: Info{GitVersion: "v1", GitCommit: "def", BuildDate: "d"}, build: recorded,
			version: "v1", commit: "def", date: "d",
		},
		"linker fills only its part": {
			linked: Info{GitVersion: "v1"}, build: recorded, version: "v1", commit: "abc-dirty",
			date: "2026-01-02T03:04:05Z",
		},
		"record without a revision": {build: &debug.BuildInfo{}, version: unknown, commit: unknown, date: unknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := Info{tt.version, tt.commit, tt.date, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			assert.Equal(t, want, describe(tt.linked, tt.build))
		})
	}
}

func TestGetSpeaksForTheRunningBinary(t *testing.T) {
	info := Get()
	assert.NotEmpty(t, info.GitVersion)
	assert.Contains(t, info.String(), runtime.Version())
	assert.Contains(t, info.String(), info.GitVersion)

	out, err := json.Marshal(info)
	require.NoError(t, err)
	for _, key := range []string{"gitVersion", "gitCommit", "buildDate", "goVersion", "platform"} {
		assert.Contains(t, string(out), `"`+key+`"`)
	}
}
