package cluster

import (
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) {
	// One of client-go's error handlers limits their rate by the time of the
	// last error in the process, which in a synctest bubble lies years ahead.
	utilruntime.ErrorHandlers = nil
	leaks.Main(m)
}
