// Package version tells which build of GlobalReserve is running. `make build` stamps it through
// the linker; a plain `go build` or `go install` falls back to what the Go toolchain recorded.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker:
//
//	-X github.com/globalreserve/globalreserve/pkg/version.gitVersion=v0.1.0
//	-X github.com/globalreserve/globalreserve/pkg/version.gitCommit=<full hash>
//	-X github.com/globalreserve/globalreserve/pkg/version.buildDate=<RFC 3339, UTC>
var (
	gitVersion string
	gitCommit  string
	buildDate  string
)

// unknown stands where neither the linker nor the toolchain knows.
const unknown = "unknown"

// Info describes one build. Its JSON is the answer of GET /version.
type Info struct {
	// GitVersion is the release tag, or the module's version, "(devel)" for a build from a work tree.
	GitVersion string `json:"gitVersion"`
	// GitCommit is the full commit hash; "-dirty" is appended for a changed work tree.
	GitCommit string `json:"gitCommit"`
	// BuildDate is RFC 3339 in UTC: when it was built or, failing that, when it was committed.
	BuildDate string `json:"buildDate"`
	// GoVersion is the toolchain, such as "go1.26.8".
	GoVersion string `json:"goVersion"`
	// Platform is operating system and architecture, such as "linux/amd64".
	Platform string `json:"platform"`
}

// Get returns the description of the running build. No field is empty.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return describe(Info{GitVersion: gitVersion, GitCommit: gitCommit, BuildDate: buildDate}, build)
}

// String is one line for people.
func (i Info) String() string {
	return fmt.Sprintf("globalreserve %s (commit %s, built %s, %s, %s)",
		i.GitVersion, i.GitCommit, i.BuildDate, i.GoVersion, i.Platform)
}

// describe fills what the linker left empty from the toolchain's record, which may be nil.
func describe(info Info, build *debug.BuildInfo) Info {
	var module, revision, date string
	if build != nil {
		settings := map[string]string{}
		for _, s := range build.Settings {
			settings[s.Key] = s.Value
		}
		module, revision, date = build.Main.Version, settings["vcs.revision"], settings["vcs.time"]
		if revision != "" && settings["vcs.modified"] == "true" {
			revision += "-dirty"
		}
	}
	info.GitVersion = cmp.Or(info.GitVersion, module, unknown)
	info.GitCommit = cmp.Or(info.GitCommit, revision, unknown)
	info.BuildDate = cmp.Or(info.BuildDate, date, unknown)
	info.GoVersion = runtime.Version()
	info.Platform = runtime.GOOS + "/" + runtime.GOARCH
	return info
}
