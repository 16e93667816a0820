module gobench

go 1.27
