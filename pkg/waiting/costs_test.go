//go:build costs

package waiting

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

// What is remembered of 10,000 refusals stays below 32 MiB, however many there were, and refers to no request.
func TestMemoryIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	l := quiet()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for k := range 2 * MaxLatest {
		r := refusal(k)
		r.Rejection.Pod.UID = types.UID(fmt.Sprint("uid-", k%MaxLatest))
		body := strings.Repeat("x", 10_000) + "node"
		r.Rejection.Node, r.Message = body[10_000:], strings.Repeat("long", 1000)
		l.Refused(r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d bytes for each of %d refusals, the pods that wait included", used/MaxLatest, MaxLatest)
	assert.Less(t, used, int64(32<<20))
	runtime.KeepAlive(l)
}
