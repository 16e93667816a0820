// pingpong MODE ROUNDS [FILE]: as pingpong.c, with Go's tracer.
package main

import (
	"fmt"
	"os"
	"runtime/trace"
	"strconv"
	"time"
)

func main() {
	mode, file := os.Args[1], "/dev/null"
	rounds, _ := strconv.Atoi(os.Args[2])
	if len(os.Args) > 3 {
		file = os.Args[3]
	}
	out, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	there, back := make(chan int), make(chan int)
	var recorder *trace.FlightRecorder
	switch mode {
	case "trace":
		err = trace.Start(out)
	case "flight":
		recorder = trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: time.Second})
		err = recorder.Start()
	}
	if err != nil {
		panic(err)
	}
	play := func(n int) time.Duration {
		begin := time.Now()
		go func() {
			for range n {
				back <- <-there
			}
		}()
		for i := range n {
			there <- i
			<-back
		}
		return time.Since(begin)
	}
	for begin := time.Now(); mode == "flight" && time.Since(begin) < 2*time.Second; {
		play(10000)
	}
	took := play(rounds)
	switch mode {
	case "trace":
		trace.Stop()
	case "flight":
		recorder.Stop()
	}
	size, _ := out.Stat()
	fmt.Printf("%.1f %.1f\n", float64(took.Nanoseconds())/float64(rounds), float64(size.Size())/float64(rounds))
}
