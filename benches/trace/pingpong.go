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
	go func() {
		for range rounds {
			back <- <-there
		}
	}()
	begin := time.Now()
	for i := range rounds {
		there <- i
		<-back
	}
	took := time.Since(begin)
	switch mode {
	case "trace":
		trace.Stop()
	case "flight":
		recorder.Stop()
	}
	size, _ := out.Stat()
	fmt.Printf("%.1f %.1f\n", float64(took.Nanoseconds())/float64(rounds), float64(size.Size())/float64(rounds))
}
