package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVersionsOfGoAPI compares the versions that go-api.md gives for the modules others import with their go.mod files.
func TestVersionsOfGoAPI(t *testing.T) {
	page, start := read(t, "go-api.md"), read(t, "../README.md")
	version := regexp.MustCompile(`(?m)^go (\S+)$|k8s\.io/(?:api|apimachinery|client-go|kube-scheduler) (v\S+)`)
	for _, module := range []string{"pkg/client", "pkg/reserver"} {
		found := map[string]bool{}
		for _, m := range version.FindAllStringSubmatch(read(t, "../"+module+"/go.mod"), -1) {
			found[m[1]+m[2]] = true
		}
		require.Len(t, found, 2, "one version of Go and one of Kubernetes in %s: %v", module, found)
		for v := range found {
			row := fmt.Sprintf("(?m)^\\| `github.com/globalreserve/globalreserve/%s` \\|.* %s \\|", module, regexp.QuoteMeta(v))
			assert.Regexp(t, row, page)
			assert.Regexp(t, `(Go|`+"`k8s.io`"+`) `+regexp.QuoteMeta(strings.TrimSuffix(v, ".0"))+`\b`, start, "the README says so")
		}
	}
}
