package docs

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVersionsOfSkew compares what skew.md says was tested with what the modules pin.
func TestVersionsOfSkew(t *testing.T) {
	page := read(t, "skew.md")
	server := pinned(t, "test/binaries")
	for module, row := range map[string]string{
		"test/oldscheduler":           "| %s | " + server + " | `TestOlderKubeSchedulers`",
		"test/coscheduler":            "| %s | " + server + " | `TestOlderKubeSchedulers`",
		"test/binaries":               "| %s | " + server + " | all end-to-end tests |",
		"cmd/globalreserve-scheduler": "| %s with the plugin | " + server + " |",
	} {
		version := pinned(t, module)
		assert.Contains(t, page, "\n"+fmt.Sprintf(row, version), "what %s pins", module)
	}
	rows := regexp.MustCompile(`(?m)^\| v1\.`).FindAllString(page, -1)
	assert.Len(t, rows, 4, "no version that nothing pins")
}

// pinned is the release of Kubernetes that a module of the repository pins.
func pinned(t *testing.T, module string) string {
	t.Helper()
	pin := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(read(t, "../"+module+"/go.mod"))
	require.NotNil(t, pin, module)
	return pin[1]
}
