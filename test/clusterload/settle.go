package clusterload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// namedPods is how many stuck pods an error names.
const namedPods = 5

// ErrStuck means that a pod was left waiting although it would fit.
var ErrStuck = errors.New("pods wait although they would fit")

// AwaitSettled returns when no pending pod would fit any more and no pod has come, gone or been bound
// for the time given, which lets binds that are under way arrive. When the context ends before that, the error
// says why, and is ErrStuck where pods wait that would fit. The snapshot is the last one either way.
func (w *Watcher) AwaitSettled(ctx context.Context, quiet time.Duration) (Snapshot, error) {
	for {
		snapshot := w.Snapshot()
		still := time.Since(snapshot.LastChange)
		if len(snapshot.FittingPods) == 0 && still >= quiet {
			if err := w.CatchUp(ctx); err != nil {
				return snapshot, err
			}
			if now := w.Snapshot(); now.LastChange.Equal(snapshot.LastChange) {
				return now, nil
			}
		}
		pause(ctx)
		if ctx.Err() == nil {
			continue
		}
		if len(snapshot.FittingPods) > 0 {
			return snapshot, fmt.Errorf("%w: %s", ErrStuck, nameStuck(snapshot.FittingPods))
		}
		return snapshot, fmt.Errorf("pods still come, go or are bound, last %s ago: %w", still.Round(time.Millisecond),
			ctx.Err())
	}
}

func nameStuck(pods []FittingPod) string {
	names := make([]string, 0, namedPods)
	for _, p := range pods[:min(len(pods), namedPods)] {
		name := fmt.Sprintf("%s/%s (of %s) on %s", p.Namespace, p.Name, p.Scheduler, p.Node)
		if p.Gang != "" {
			name += " with its gang " + p.Gang
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if more := len(pods) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
